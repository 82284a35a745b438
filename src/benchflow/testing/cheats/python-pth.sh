# family: python start-up
# what: A .pth file in the user's own packages runs a line in every Python.
# user: any
mkdir -p "$site_user"
echo "import os; exec(open('$scratch/pay.py').read())" > "$site_user/zzz.pth"
