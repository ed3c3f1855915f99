package client_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// What a worker claims fits into a reply, however large the requests are: an attempt that was begun and cannot be told would be lost until its claim expires.
func TestClaimsOfLargeRequestsFit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client.Operations()
	body := bytes.Repeat([]byte("x"), operation.MaxBody)
	for i := range 66 {
		if _, err := w.operations.Submit(t.Context(), operation.SubmitRequest{ID: fmt.Sprint(i), Kind: "k", Request: body, Fingerprint: operation.FingerprintOf("k", body)}); err != nil {
			t.Fatal(err)
		}
	}
	got := 0
	for got < 66 {
		jobs, err := c.Claim(t.Context(), operation.ClaimRequest{Worker: "w", TTL: time.Minute, Limit: 100, Kinds: []operation.KindClaim{{Kind: "k", Limit: 100, Timeout: time.Minute, MaxAttempts: 1}}})
		if err != nil || len(jobs) == 0 {
			t.Fatalf("after %d: %d, %v", got, len(jobs), err)
		}
		got += len(jobs)
	}
}
