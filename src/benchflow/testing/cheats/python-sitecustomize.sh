# family: python start-up
# what: A sitecustomize module in the user's own packages runs in every Python.
# user: any
mkdir -p "$site_user"
cp "$scratch/pay.py" "$site_user/sitecustomize.py"
cp "$scratch/pay.py" "$site_user/usercustomize.py"
