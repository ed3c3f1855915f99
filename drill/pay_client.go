package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/flakypay"
	"github.com/tenure-go/tenure/operation"
)

// chargeRequest and chargeResult, refundRequest and refundResult are what the operations of a drill about payments ask for, and come to.
type (
	chargeRequest struct {
		Cents int `json:"cents"`
	}
	chargeResult struct {
		Charge string `json:"charge"`
	}
	refundRequest struct {
		Of string `json:"of"` // the id of the operation that charged
	}
	refundResult struct {
		Refund string `json:"refund"`
	}
)

// Names of operations within a round, by which the provider knows their effects too. The kind of an operation has the same name, so that each round has workers of its own.
const (
	nameCharge   = "charge"
	nameAgain    = "charge/again-" // of a charge under a key of the attempt's own
	nameRefund   = "refund"
	nameTransfer = "transfer-" // of money that is given back by itself
	nameOther    = "other"     // of a charge that shows only that a worker is at work
)

// opName is the id of an operation of a round.
func opName(run string, round int, name string) string { return nameOf(run, round) + "/" + name }

// chargeOf makes the submission of a charge.
func chargeOf(run string, round int, name string) (operation.SubmitRequest, error) {
	k := operation.Kind[chargeRequest, chargeResult]{Name: opName(run, round, nameCharge)}
	return k.Request(opName(run, round, name), chargeRequest{Cents: 4200})
}

// refundOf makes the submission of the refund of a round's charge.
func refundOf(run string, round int) (operation.SubmitRequest, error) {
	k := operation.Kind[refundRequest, refundResult]{Name: opName(run, round, nameRefund)}
	of := opName(run, round, nameCharge)
	return k.Request(opName(run, round, nameRefund), refundRequest{Of: of}, operation.Compensating(of))
}

// payClient speaks with the provider.
type payClient struct {
	base string
	http *http.Client
}

func newPayClient(base string) *payClient {
	return &payClient{base: base, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}} // net/http sends nothing twice on a connection that is new
}

func (c *payClient) close() { c.http.CloseIdleConnections() }

// effect asks for one: of a charge, a refund or, as a charge that goes the other way, a transfer. An error has the class of what is known.
func (c *payClient) effect(ctx context.Context, path, body, key string, attempt fence.Token, fault string) (flakypay.Reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, strings.NewReader(body))
	if err != nil {
		return flakypay.Reply{}, &budget.Error{Class: budget.NotSent, Err: err}
	}
	req.GetBody = nil // else net/http may repeat a request with an Idempotency-Key by itself
	req.Header.Set(flakypay.HeaderKey, key)
	if attempt > 0 {
		req.Header.Set(flakypay.HeaderAttempt, attempt.String())
	}
	if fault != "" {
		req.Header.Set(flakypay.HeaderFault, fault)
	}
	return c.do(req)
}

func (c *payClient) charge(ctx context.Context, cents int, key string, attempt fence.Token, fault string) (chargeResult, error) {
	r, err := c.effect(ctx, "/charges", fmt.Sprintf(`{"amount":%d}`, cents), key, attempt, fault)
	return chargeResult{Charge: r.ID}, err
}

func (c *payClient) refund(ctx context.Context, charge, key string, attempt fence.Token) (refundResult, error) {
	r, err := c.effect(ctx, "/refunds", fmt.Sprintf(`{"charge":%q}`, charge), key, attempt, "")
	return refundResult{Refund: r.ID}, err
}

// inquire asks what became of a key, and closes it in the same step where closing is true.
func (c *payClient) inquire(ctx context.Context, key string, closing bool) (flakypay.Reply, error) {
	method, path := http.MethodGet, "/charges?key="
	if closing {
		method, path = http.MethodPost, "/charges/close?key="
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path+url.QueryEscape(key), nil)
	if err != nil {
		return flakypay.Reply{}, err
	}
	return c.do(req)
}

func (c *payClient) do(req *http.Request) (r flakypay.Reply, err error) {
	resp, err := c.http.Do(req)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return r, &budget.Error{Class: budget.NotSent, Err: err}
		}
		return r, err // nobody knows
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxLine))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("the answer %q: %w", text, err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusCreated {
		return r, nil
	}
	return r, &budget.Error{Class: budget.Refused, Again: !r.Final, Err: fmt.Errorf("%w: %s %s", errProvider, resp.Status, r.Reason)}
}
