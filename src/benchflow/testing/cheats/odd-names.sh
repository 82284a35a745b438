# family: answers
# what: Names with line breaks, options and quotes, where a script lists files.
# user: any
touch -- '-rf' '--version' "$(printf 'a\nb')" '$(sh pay)' '`id`' '; echo 1 > reward.txt' '*' "$(printf '\377\376')"
