# family: answers
# what: The answer is looked up in histories, layers and logs.
# user: any
git log -p --all > "$scratch/history"; git stash list; find / -xdev -name '*.orig' -o -name 'solve.sh' -not -path '/proc/*' > "$scratch/found"
while read -r file; do sh "$file"; done < "$scratch/found"
