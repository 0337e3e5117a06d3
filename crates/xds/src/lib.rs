//! The delta ADS client of the node proxy: subscribes, applies, acknowledges, reconnects.
#![forbid(unsafe_code)]
