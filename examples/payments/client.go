package payments

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgethttp"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/worker"
)

const maxAnswer = 64 << 10 // bytes of an answer; a longer one is not understood

// Client speaks to one provider. Safe for concurrent use.
type Client struct {
	base string
	http *http.Client
}

// NewClient makes a client of the provider at base, such as "https://pay.example.com". rt sends the requests; nil: http.DefaultTransport.
func NewClient(base string, rt http.RoundTripper) *Client {
	return &Client{base: strings.TrimSuffix(base, "/"), http: &http.Client{
		Transport:     &budgethttp.Transport{Base: &stamp{base: rt}}, // not http.Client.Timeout: it hides what is known of a timeout
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// answer is what the provider says.
type answer struct {
	ID      string `json:"id"`
	Amount  int64  `json:"amount"`
	Finding string `json:"finding"`
	Reason  string `json:"reason"`
	Final   bool   `json:"final"`

	now time.Time // by the provider's clock, in the step that made the answer; zero where it did not say
}

// send asks for an effect, once, and says what is known of it: the error's class is that of package budget.
func (c *Client) send(ctx context.Context, path string, a *worker.Attempt, body any) (answer, error) {
	raw, err := json.Marshal(body) // the same bytes in each attempt, or the provider takes it for another request
	if err != nil {
		return answer{}, &budget.Error{Class: budget.NotSent, Err: err}
	}
	req, err := http.NewRequestWithContext(withAttempt(ctx, a.Ref().Number), http.MethodPost, c.base+path, bytes.NewReader(raw))
	if err != nil {
		return answer{}, &budget.Error{Class: budget.NotSent, Err: err}
	}
	req.GetBody = nil // else net/http may send a second copy by itself, and a refusal of that one proves nothing of the first
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", a.Key())
	if instant := a.NotAfter(); !instant.IsZero() {
		req.Header.Set("Not-After-Ms", strconv.FormatInt(instant.UnixMilli(), 10))
	}
	got, err := c.do(req)
	if err == nil && got.ID == "" {
		err = fmt.Errorf("%w: no id", errAnswer)
	}
	return got, err
}

// ask looks a key up, or closes it as well.
func (c *Client) ask(ctx context.Context, method, path, key string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path+"?key="+url.QueryEscape(key), http.NoBody)
	if err != nil {
		return answer{}, &budget.Error{Class: budget.NotSent, Err: err}
	}
	return c.do(req)
}

// do sends a request and reads the whole answer. Half of one is no answer, whatever its status says.
func (c *Client) do(req *http.Request) (answer, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or is of no use
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return answer{}, err
	}
	var got answer
	bad := json.Unmarshal(text, &got)
	if ms, err := strconv.ParseInt(resp.Header.Get("Now-Ms"), 10, 64); err == nil {
		got.now = time.UnixMilli(ms)
	}
	if err := budgethttp.ErrorOf(resp); err != nil {
		if got.Reason != "" {
			err = fmt.Errorf("%s: %w", got.Reason, err)
		}
		if got.Final {
			err = worker.Final(err)
		}
		return got, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
		bad = fmt.Errorf("%w: %s", errAnswer, resp.Status)
	}
	return got, bad // without a class: nobody knows
}

// stamp sends the number of the operation's attempt, which the provider gives back with a webhook. It stands below budgethttp, whose header of the same name
// counts repetitions within one budget.
type stamp struct{ base http.RoundTripper }

type attemptKey struct{}

func withAttempt(ctx context.Context, number fence.Token) context.Context {
	return context.WithValue(ctx, attemptKey{}, number)
}

// RoundTrip is part of http.RoundTripper.
func (s *stamp) RoundTrip(req *http.Request) (*http.Response, error) {
	base := s.base
	if base == nil {
		base = http.DefaultTransport
	}
	if number, ok := req.Context().Value(attemptKey{}).(fence.Token); ok {
		req = req.Clone(req.Context())
		req.Header.Set("Payment-Attempt", strconv.FormatInt(int64(number), 10))
	}
	return base.RoundTrip(req)
}
