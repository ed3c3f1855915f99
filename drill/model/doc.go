// Package model judges what a resource tells of a drill: which writes it accepted, what it answered, what it
// holds in the end. It is pure: no clock, no I/O, and it trusts no counter of whoever ran the drill.
//
// It also holds the serial model of a lease and its resource ([Seed]) and the story that is told on it
// ([Story]): what a real store and a real resource must do in the same order of events.
package model
