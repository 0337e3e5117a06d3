# The release of the unmodified ztunnel that ZTUNNEL names, as far as checks see a difference: 1.30, or 1.31 and later. One that was built
# from sources says "unknown" of itself; "visibility", which 1.31 shows of each service, is a word of no earlier one.
# shellcheck shell=bash
RELEASE=1.30
if grep -aq visibility "$ZTUNNEL"; then RELEASE=1.31; fi
