package operationtest

import "slices"

// Cases is what every store must do. Each run takes a harness of its own, whose clock runs.
func Cases() []Case[Harness] {
	return slices.Concat(
		submitCases(), orderCases(), claimCases(), windowCases(), renewCases(), expiryCases(), completeCases(), evidenceCases(), inquiryCases(), cancelCases(),
		listCases(), pruneCases(), inputCases(), raceCases(),
	)
}
