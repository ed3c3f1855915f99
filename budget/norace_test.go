//go:build !race

package budget

// many is how many budgets run at the same time.
const many = 1_000_000
