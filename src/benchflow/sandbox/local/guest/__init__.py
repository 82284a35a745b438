"""What runs behind the wall: the zygote, each box's first process, and the children they fork.

These modules import the standard library and each other, nothing else: they are loaded once by a bare
`python -I -S`, and every box is a fork of that process. After a box has changed its root no module may be
imported any more (the paths would lead into files the box controls), which `zygote.seal` enforces.
"""
