"""What the table of rules and releases cannot tell by itself: why a rule speaks, or is silent, against what was seen,
which bounds were corrected after a play, and which sets were not installed."""

TOLD = {
    "ZC209": "another value is used there, and not the one that is written",
    "ZC705": "the address is missing all the same",
    "ZC741": "accelerate before 1.0 starts without DeepSpeed, which nobody wants either",
    "ZC310": "before DeepSpeed 0.19.8 gradients of stage 1 are integers as well, and nothing stops",
    "ZC440": "the level of the log is not read before DeepSpeed 0.19.3, so nobody sees what it says",
    "ZC504": "host memory is not pinned by default there, and the states go to it all the same",
    "ZC922": "DeepSpeed 0.17.6 holds 16 bytes a parameter, not 14, which fit even less",
    "ZC923": "the 18.5 bytes a parameter of DeepSpeed 0.16.9 are more than that host has, too",
    "ZC635": "accelerate 1.10 to 1.14 stops in prepare, later than the example is played",
    **dict.fromkeys(("ZC855", "ZC858", "ZC859"), "the trainer of TRL 0.17 stops, later than the example is played"),
    **dict.fromkeys(("ZC317", "ZC409", "ZC455", "ZC509"), "judged by the settings of a release"),
}
"""Rules that tell of a set on which an example shows something else, and why that is right."""

LESS = {
    **dict.fromkeys(("ZC622", "ZC628", "ZC631", "ZC644"), "nothing is said of these arguments before 5.10"),
    "ZC602": "accelerate before 1.6 has no such key, which ZC865 tells",
}
"""Rules that are silent on a set on which an example does what they claim, and why."""

CHANGED = {
    "ZC724": "from every accelerate to 1.0 and later: 0.34.2 builds the whole model with `zero3_init_flag: false`",
    "ZC850": "from every TRL, a note before 1.16, to 0.29 and later: the DPOTrainer of 0.17, 0.19 and 0.22 flattens",
}
"""By rule, a bound that was corrected because of what was seen on a set: from what, to what."""

NOT_INSTALLED = {
    "transformers 5.24.0 and torch 2.15": "follow with `make follow-release`; every set shares today's torch",
    "DeepSpeed before 0.14": "not tried",
}
"""Sets that are missing, and why."""
