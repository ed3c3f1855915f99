//go:build race

package budget

// many is how many budgets run at the same time: the race detector takes ten times the memory.
const many = 100_000
