#!/bin/sh
set -e
[ "$1" = remove ] || exit 0
