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
    **dict.fromkeys(("ZC855", "ZC858", "ZC859"), "the trainer of TRL 0.17 stops, later than the example is played"),
    **dict.fromkeys(("ZC317", "ZC409", "ZC455", "ZC509"), "judged by the settings of a release"),
}
"""Rules that tell of a set on which an example shows something else, and why that is right."""

MILDER = {
    "ZC841": "TrlParser of TRL 0.13 to 0.18 drops the key without a word, which the warning says",
    "ZC854": "TrlParser of TRL 0.13 to 0.18 drops the entries without a word, which the warning says",
    **dict.fromkeys(("ZC405", "ZC447", "ZC457"), "DeepSpeed 0.17 and 0.18 print nothing below a warning; it holds"),
    "ZC448": "DeepSpeed up to 0.17 prints the report in another form, or below the level that it prints; it holds",
    "ZC462": "DeepSpeed before 0.19.3 writes the same checkpoint and says nothing",
    "ZC501": "DeepSpeed up to 0.17 pins the weights in any case, and the gradients only where it is asked to",
    "ZC925": "DeepSpeed before 0.19.5 offloads all the same, through memory that is not pinned by default",
    "ZC744": "accelerate up to 1.6 hands no port on, and torchrun takes 29500",
    "ZC901": "DeepSpeed 0.17.6 takes another optimizer, which holds 14 bytes a parameter instead of 12",
    "ZC906": "2.5 times as much is gathered there as for the good example, instead of 2.7 times",
}
"""Rules with a warning or a note on a set on which an example shows something else, and why that is right."""

LESS = {
    **dict.fromkeys(("ZC622", "ZC628", "ZC631", "ZC644"), "nothing is said of these arguments before 5.10"),
    "ZC602": "accelerate before 1.6 has no such key, which ZC865 tells",
    "ZC613": "accelerate before 1.6 has no FSDP 2, which ZC865 tells; FSDP 1 shards these modules in any case",
}
"""Rules that are silent on a set on which an example does what they claim, and why."""

CHANGED = {
    "ZC724": "from every accelerate to 1.0 and later: with 0.34.2 `zero3_init_flag: false` keeps the model whole",
    "ZC924": "from every DeepSpeed to 0.19.5 and later where `pin_memory` is not written: false by default before",
    "ZC854": "from an error for every TRL to a warning for 0.13 to 0.18, which drop the entries without a word",
    "ZC850": "from every TRL, a note before 1.16, to 0.29 and later: the DPOTrainer of 0.17 to 0.22 has it",
}
"""By rule, a bound that was corrected because of what was seen on a set: from what, to what."""

NOT_INSTALLED = {
    "transformers 5.24.0 and torch 2.15": "follow with `make follow-release`; every set shares today's torch",
    "DeepSpeed before 0.14": "not tried",
}
"""Sets that are missing, and why."""
