package holdtest

import "slices"

// Cases is what every store must do. Each run takes a harness of its own, whose clock runs.
func Cases() []Case[Harness] {
	return slices.Concat(placeCases(), repeatCases(), limitCases(), expiryCases(), extendCases(), confirmCases(), lateCases(), graceCases(), releaseCases(), stockCases(),
		listCases(), pruneCases(), inputCases(), raceCases())
}
