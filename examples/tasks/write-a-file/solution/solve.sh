#!/bin/sh
set -eu
printf 'Hello from the sandbox!\n' > /app/greeting.txt
