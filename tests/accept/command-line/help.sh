#!/usr/bin/env bash
# Help and usage. 39-command-line.sh sources this file.
# shellcheck shell=bash

wide=$(in_terminal 100 "$LATEEN" --help | awk '{ if (length($0) > 100) print }')
equal "the help fits 100 columns" "" "$wide"
