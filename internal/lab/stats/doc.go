// Package stats turns blocks of measurements into judgements: paired ratios with bootstrap intervals, a rank test as second
// witness, a correction for looking at several metrics, and a noise floor. It is pure: no clock, no files, and the same
// blocks give the same judgements.
package stats
