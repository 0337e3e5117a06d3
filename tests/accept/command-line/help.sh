#!/usr/bin/env bash
# Help and usage. 39-command-line.sh sources this file.
# shellcheck shell=bash

for columns in 80 100 160; do
  equal "the help fits $columns columns" "" "$(too_wide $columns "$LATEEN" --help)"
  for command in up down apply delete get label annotate wait logs tap top exec proxy "proxy config" status list lab; do
    # shellcheck disable=SC2086
    wide=$(too_wide $columns "$LATEEN" $command --help | grep -v '^  lateen ') # a command to copy is one line
    [ -z "$wide" ] || not_ok "the help of $command fits $columns columns: $wide"
  done
done
