//! Picks one endpoint out of many; pure, randomness is an argument.
#![forbid(unsafe_code)]
