package budgethttp

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// TestAnswers: what each status says of its request.
func TestAnswers(t *testing.T) {
	type known struct {
		class budget.Class
		again bool
		after time.Duration
		never bool
	}
	for name, c := range map[string]struct {
		code   int
		header http.Header
		want   known
	}{
		"400": {400, nil, known{class: budget.Refused}}, "404": {404, nil, known{class: budget.Refused}}, "409": {409, nil, known{class: budget.Refused}}, "422": {422, nil, known{class: budget.Refused}},
		"408":                 {408, nil, known{class: budget.Unknown}},
		"499":                 {499, nil, known{class: budget.Unknown}},
		"429":                 {429, nil, known{class: budget.Refused, again: true}},
		"429, after":          {429, http.Header{"Retry-After": {"3"}}, known{class: budget.Refused, again: true, after: 3 * time.Second}},
		"500":                 {500, nil, known{class: budget.Unknown}},
		"502":                 {502, nil, known{class: budget.Unknown}},
		"504":                 {504, nil, known{class: budget.Unknown}},
		"599":                 {599, nil, known{class: budget.Unknown}},
		"a proxy's own 503":   {503, nil, known{class: budget.Unknown}},
		"503, garbage":        {503, http.Header{"Retry-After": {"soon"}}, known{class: budget.Unknown}},
		"503, now":            {503, http.Header{"Retry-After": {"0"}}, known{class: budget.Refused, again: true}},
		"503, after":          {503, http.Header{"Retry-After": {"3"}}, known{class: budget.Refused, again: true, after: 3 * time.Second}},
		"503, never":          {503, http.Header{"Retry-After": {"3"}, budget.HeaderNoRetry: {"1"}}, known{class: budget.Refused, again: true, after: 3 * time.Second, never: true}},
		"500, after, never":   {500, http.Header{"Retry-After": {"3"}, budget.HeaderNoRetry: {"1"}}, known{class: budget.Unknown, after: 3 * time.Second, never: true}},
		"504, not started":    {504, http.Header{budget.HeaderNotStarted: {"1"}, budget.HeaderNoRetry: {"1"}}, known{class: budget.Refused, never: true}},
		"504, not started?":   {504, http.Header{budget.HeaderNotStarted: {"true"}}, known{class: budget.Unknown}},
		"500, not started":    {500, http.Header{budget.HeaderNotStarted: {"1"}}, known{class: budget.Unknown}},
		"a mark that is none": {400, http.Header{budget.HeaderNoRetry: {"0"}}, known{class: budget.Refused}},
	} {
		err := ErrorOf(&http.Response{StatusCode: c.code, Header: c.header})
		var e *budget.Error
		var status *StatusError
		if !errors.As(err, &e) || (known{e.Class, e.Again, e.RetryAfter, e.NoRetry}) != c.want || !errors.As(err, &status) || status.Code != c.code {
			t.Errorf("%s: %+v", name, err)
		}
	}
	for _, code := range []int{100, 200, 204, 302, 399} {
		if err := ErrorOf(&http.Response{StatusCode: code}); err != nil {
			t.Errorf("%d: %v", code, err)
		}
	}
}

// TestRetryAfter: seconds, or a date by the service's own clock, which may be days off; never more than a day, and nothing for garbage.
func TestRetryAfter(t *testing.T) {
	service := time.Date(1999, 12, 31, 23, 59, 50, 0, time.UTC) // a clock that is off by decades
	date := func(d time.Duration) string { return service.Add(d).Format(http.TimeFormat) }
	day := maxRetryAfter
	for text, want := range map[string]time.Duration{
		"0": 0, "1": time.Second, "120": 2 * time.Minute, "86400": day, "86401": day, "99999999999": day, "99999999999999999999": day,
		date(30 * time.Second): 30 * time.Second, date(-time.Hour): 0, date(48 * time.Hour): day, service.Add(time.Minute).Format(time.ANSIC): time.Minute,
	} {
		if got, ok := retryAfter(http.Header{"Retry-After": {text}, "Date": {date(0)}}); got != want || !ok {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "-1", "+1", "1.5", "1s", " 1", "١", "soon", "999999999999999999999", "Sat, 31 Dec 1999", date(time.Second) + "x"} {
		if got, ok := retryAfter(http.Header{"Retry-After": {text}, "Date": {date(0)}}); got != 0 || ok {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
	for _, now := range []string{"", "yesterday"} { // no clock to compare with
		if got, ok := retryAfter(http.Header{"Retry-After": {date(time.Minute)}, "Date": {now}}); got != 0 || ok {
			t.Errorf("Date %q: %v, %v", now, got, ok)
		}
	}
}

// TestFail: a failure is answered with what a caller's ErrorOf reads of it again.
func TestFail(t *testing.T) {
	cause := errors.New("cause")
	gave := func(attempts int, why error, last error) error {
		return &budget.GaveUpError{Why: why, Last: last, Class: budget.ClassOf(last), Attempts: attempts}
	}
	for name, c := range map[string]struct {
		err   error
		code  int
		class budget.Class // as the caller reads it
		after string
		never bool
	}{
		"not sent":                      {&budget.Error{Class: budget.NotSent, Err: cause}, 503, budget.Refused, "0", false},
		"refused":                       {&budget.Error{Class: budget.Refused, Err: cause}, 422, budget.Refused, "", false},
		"refused for now":               {&budget.Error{Class: budget.Refused, Again: true, Err: cause}, 503, budget.Refused, "0", false},
		"refused until later":           {&budget.Error{Class: budget.Refused, RetryAfter: 1500 * time.Millisecond, Err: cause}, 503, budget.Refused, "2", false},
		"unknown":                       {&budget.Error{Class: budget.Unknown, Err: cause}, 504, budget.Unknown, "", false},
		"refused for ever":              {&budget.Error{Class: budget.Refused, RetryAfter: 1<<63 - 1, Err: cause}, 503, budget.Refused, "86400", false},
		"until a time that is past":     {&budget.Error{Class: budget.NotSent, RetryAfter: -5 * time.Second, Err: cause}, 503, budget.Refused, "0", false},
		"never":                         {&budget.Error{Class: budget.Refused, Again: true, NoRetry: true, Err: cause}, 503, budget.Refused, "0", true},
		"no time":                       {&budget.NoTimeError{What: "a request"}, 504, budget.Refused, "", false},
		"no time after an attempt":      {gave(1, &budget.NoTimeError{What: "another"}, cause), 504, budget.Unknown, "", false},
		"anything":                      {cause, 504, budget.Unknown, "", false},
		"one attempt":                   {gave(1, budget.ErrNotRepeated, &budget.Error{Class: budget.Unknown, Err: cause}), 504, budget.Unknown, "", false},
		"several":                       {gave(2, budget.ErrAttempts, &budget.Error{Class: budget.NotSent, Err: cause}), 503, budget.Refused, "0", true},
		"an earlier attempt is unknown": {&budget.GaveUpError{Why: budget.ErrAttempts, Last: &budget.Error{Class: budget.NotSent, Err: cause}, Class: budget.Unknown, Attempts: 2}, 504, budget.Unknown, "", true},
		"throttled":                     {gave(1, budget.ErrThrottled, &budget.Error{Class: budget.NotSent, Err: cause}), 503, budget.Refused, "0", true},
		"wrapped":                       {fmt.Errorf("charging: %w", gave(3, budget.ErrNoTime, cause)), 504, budget.Unknown, "", true},
	} {
		w := httptest.NewRecorder()
		Fail(w, c.err)
		resp := w.Result()
		resp.Body.Close()
		var known *budget.Error
		if !errors.As(ErrorOf(resp), &known) || resp.StatusCode != c.code || known.Class != c.class || resp.Header.Get("Retry-After") != c.after || known.NoRetry != c.never {
			t.Errorf("%s: %d, %v, %v", name, resp.StatusCode, resp.Header, known)
		}
	}
}
