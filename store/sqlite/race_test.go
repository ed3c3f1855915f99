//go:build race

package sqlite

// raceDetector says whether the tests run with the race detector, under which a call takes five times as long.
const raceDetector = true
