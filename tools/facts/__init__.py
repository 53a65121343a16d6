"""What each release of the training libraries reads: established by running every one of them (`make facts`).

`releases.yaml` names the releases; `environment` installs one, a `walk_*` program runs inside it and prints what it
saw (a *census*), `fold` turns the censuses of a library into one file of histories that linting reads.
"""
