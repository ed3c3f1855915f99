package lease_test

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/lease"
)

// The broken twins. Each is the client with one rule undone: where the rule lies between the client and the
// authority, by a store that undoes it on the way; elsewhere by a function that stands for the client's.

// unknownIsEnd takes a renewal of unknown outcome for the end.
type unknownIsEnd struct{ lease.Store }

func (s unknownIsEnd) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	r, err := s.Store.Renew(ctx, req)
	if errors.Is(err, lease.ErrUnknown) {
		err = &lease.EndedError{What: "session", ID: req.Session, How: lease.EndExpired}
	}
	return r, err
}
