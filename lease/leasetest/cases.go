package leasetest

import "slices"

// Cases is what every store must do. Each run takes a harness of its own, whose clock runs.
func Cases() []Case[Harness] {
	return slices.Concat(
		sessionCases(), expiryCases(), acquireCases(), idCases(), releaseCases(), maxHoldCases(), tokenCases(),
		inputCases(), requestCases(), repeatCases(), raceCases(),
	)
}
