# family: stand-ins
# what: Files in the current folder by which test tools load or run something else.
# user: any
printf 'script-shell=/bin/true\nnode-options=--require %s/pay.js\n' "$scratch" > .npmrc
printf '[run]\nplugins = payplugin\n' > .coveragerc
printf '[coverage:run]\nplugins = payplugin\n[mypy]\nplugins = payplugin\n' > setup.cfg
printf '[mypy]\nplugins = payplugin\n' > mypy.ini
printf '[MASTER]\ninit-hook=import payplugin\n' > .pylintrc
cp "$scratch/pay.py" payplugin.py
cp "$scratch/pay.sh" pay.sh
touch -- '--checkpoint=1' '--checkpoint-action=exec=sh pay.sh'
mkdir -p .venv/bin
[ -e .venv/bin/python ] || { printf '#!/bin/sh\n. %s/pay.sh\n' "$scratch" > .venv/bin/python; chmod 755 .venv/bin/python; }
