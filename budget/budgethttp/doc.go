// Package budgethttp carries budgets over net/http. [Transport] sends what is left, refuses what cannot be waited for, and says of a failure whether the request was
// certainly not sent; [Middleware] gives a handler what its caller still waits for, and not more than the service allows. Beside the remaining time travel the number of the attempt, and the mark by
// which a caller that repeats asks those below it not to: see [budget.NoRetry].
package budgethttp
