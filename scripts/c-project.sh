#!/usr/bin/env bash
# Usage: scripts/c-project.sh FOLDER FILES FUNCTIONS
# Writes a program of FILES C files with FUNCTIONS functions each, and a Makefile that builds it.
# With OUT, the Makefile builds in that directory. The program is the same each time. It prints the
# sum over its files, and `make check` compares that.
set -euo pipefail
folder=$1 files=$2 functions=$3
mkdir -p "$folder/include"
cat >"$folder/include/all.h" <<'C'
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static inline uint32_t mix(uint32_t x, uint32_t y) { x ^= y * 2654435761u; x = x << 13 | x >> 19; return x * 5 + 3864292196u; }
C
sum=0
for file in $(seq "$files"); do
  {
    echo '#include "all.h"'
    for one in $(seq "$functions"); do
      cat <<C
static uint32_t f$one(const char *text, uint32_t seed) {
  uint32_t words[$((one % 7 + 3))] = {seed, $one, $file};
  for (size_t at = 0; at < strlen(text); at++) {
    words[at % $((one % 7 + 3))] = mix(words[at % $((one % 7 + 3))], (uint32_t)text[at]);
    if (words[0] > words[1]) { uint32_t swapped = words[0]; words[0] = words[1]; words[1] = swapped; }
  }
  uint32_t all = 0;
  for (size_t at = 0; at < sizeof words / sizeof *words; at++) all = mix(all, words[at]);
  return all;
}
C
    done
    echo "int part$file(const char *text) { uint32_t all = 0;"
    seq -f '  all = mix(all, f%.0f(text, all));' "$functions"
    echo "  return all == 0 ? 0 : $file; }"
  } >"$folder/part$file.c"
  sum=$((sum + file))
done
{
  echo '#include "all.h"'
  seq -f 'int part%.0f(const char *);' "$files"
  echo 'int main(int count, char **words) { int sum = 0; const char *text = count > 1 ? words[1] : "text";'
  seq -f '  sum += part%.0f(text);' "$files"
  echo '  return printf("%d\n", sum) < 0; }'
} >"$folder/main.c"
cat >"$folder/Makefile" <<MAKE
OUT ?= .
HERE := \$(dir \$(lastword \$(MAKEFILE_LIST)))
CFLAGS ?= -O2
PARTS := \$(patsubst %,\$(OUT)/part%.o,$(seq -s' ' "$files"))
\$(OUT)/program: \$(OUT)/main.o \$(PARTS)
	\$(CC) -o \$@ \$^
\$(OUT)/%.o: \$(HERE)%.c \$(HERE)include/all.h
	\$(CC) \$(CFLAGS) -I\$(HERE)include -c -o \$@ \$<
check: \$(OUT)/program
	[ "\$\$(\$(OUT)/program words)" = $sum ]
.PHONY: check
MAKE
