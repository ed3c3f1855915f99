//go:build !race

package main

// raceDetector says whether the tests run with the race detector: then the command is built with it too.
const raceDetector = false
