"""The schemas that editors read: the compiled models in the words and the dialect that language servers show best.

``values`` says what is offered for a key and what is taken, ``words`` what a hover tells, ``form`` puts a file
together, ``listing`` holds the names of the files that an editor finds a schema by.
"""
