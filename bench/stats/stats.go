// Package stats has the few figures that a benchmark may be summed up in: medians, percentiles and the ratios of
// rounds that ran beside each other. No means: one stall of a shared disk moves a mean and says nothing.
package stats

import (
	"math"
	"slices"
)

// Median returns the middle value, the mean of the two middle ones of an even number, and 0 for none. values
// stay as they are.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Percentile returns the smallest value that at least p per cent of the values do not exceed (nearest rank), so that it
// is always one that was measured. p is brought into 0 to 100, where 0 gives the smallest. It returns 0 for no values.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(min(max(p, 0), 100) / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// Ratios divides round by round: a[i] and b[i] ran beside each other, so what slowed the machine then slowed
// both. Rounds beyond the shorter one, and those where b is 0, are left out.
func Ratios(a, b []float64) []float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return ratios
}

// Spread returns the largest divided by the smallest; 0 for no values, and for a smallest that is not positive.
func Spread(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	least := slices.Min(values)
	if least <= 0 {
		return 0
	}
	return slices.Max(values) / least
}
