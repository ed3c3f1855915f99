package lease_test

import (
	"testing"

	"github.com/tenure-go/tenure/lease"
)

// L7: a renewal was applied and its reply lost; the lease survives. The twin takes the lost reply for the end.
func TestL7LostRenewalReply(t *testing.T) {
	both(t, func(w *world) error {
		s, p := w.client(lease.Options{})
		l := w.mustAcquire(s, "a")
		p.next("renew", loseReply, loseReply)
		pass(3 * ttl)
		_, err := l.Claim()
		return err
	}, func(w *world) {
		w.wrap = func(s lease.Store) lease.Store { return unknownIsEnd{s} }
	})
}
