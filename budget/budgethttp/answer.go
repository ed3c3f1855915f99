package budgethttp

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// ErrorOf is what an answer says of its request: nil for one below 400; a [*budget.Error] otherwise. 429, and 503 with a Retry-After, are a refusal that another
// attempt may find otherwise; other answers 4xx are a refusal, except 408 and 499, by which frameworks also answer for a handler that goes on; 504 with [budget.HeaderNotStarted] is one too; other 5xx prove nothing, because the service, or
// what it called, may have done it: that holds for a bare 503 too, which proxies also answer when a service's connection broke after it had the request. An answer at the end of redirections is no refusal either unless each of
// them was 307 or 308, because the first service may have done its part. Retry-After is heeded in both its forms, up to a day, and so is the mark that asks for
// no repetition. The body is not touched.
func ErrorOf(resp *http.Response) error {
	if resp.StatusCode < 400 {
		return nil
	}
	after, hint := retryAfter(resp.Header)
	e := &budget.Error{Class: budget.Unknown, Phase: budget.PhaseReading, Err: &StatusError{resp.StatusCode},
		NoRetry: budget.ParseNoRetry(resp.Header.Get(budget.HeaderNoRetry)), RetryAfter: after}
	switch {
	case resp.Request != nil && redirected(resp.Request):
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable && hint:
		e.Class, e.Again = budget.Refused, true
	case resp.StatusCode == http.StatusRequestTimeout, resp.StatusCode == clientClosedRequest:
	case resp.StatusCode < 500, resp.StatusCode == http.StatusGatewayTimeout && resp.Header.Get(budget.HeaderNotStarted) == "1":
		e.Class = budget.Refused
	}
	return e
}

// redirected reports whether a request follows from the answer to another one, other than "ask there instead".
func redirected(req *http.Request) bool {
	for resp := req.Response; resp != nil; resp = resp.Request.Response {
		if resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
			return true
		}
		if resp.Request == nil {
			return false
		}
	}
	return false
}

const (
	maxRetryAfter       = 24 * time.Hour
	clientClosedRequest = 499 // of nginx, and what gateways make of CANCELLED
)

// retryAfter reads seconds, or a date by the service's own Date, so that no two clocks are compared; ok is false for what is neither.
func retryAfter(h http.Header) (after time.Duration, ok bool) {
	text := h.Get("Retry-After")
	if text != "" && len(text) <= 20 && strings.Trim(text, "0123456789") == "" {
		seconds, err := strconv.ParseUint(text, 10, 64)
		if most := uint64(maxRetryAfter / time.Second); err != nil || seconds > most { // too large for the type, or for anybody
			seconds = most
		}
		return time.Duration(seconds) * time.Second, true
	}
	until, err := http.ParseTime(text)
	now, errNow := http.ParseTime(h.Get("Date"))
	if err != nil || errNow != nil {
		return 0, false
	}
	return min(max(0, until.Sub(now)), maxRetryAfter), true
}
