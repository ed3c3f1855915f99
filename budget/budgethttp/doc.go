// Package budgethttp carries budgets over net/http. [Transport] sends what is left, refuses what cannot be waited for, and says of a failure whether the request was
// certainly not sent; [Middleware] gives a handler what its caller still waits for, and not more than the service allows.
package budgethttp
