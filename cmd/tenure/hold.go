package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/store/postgres"
	"github.com/tenure-go/tenure/store/sqlite"
)

const holdLong = `A hold reserves items for an actor until a deadline by the store's clock: seats while a buyer pays, stock while an order is
made. It has all of its lines, or there is none. An item has a quantity, 1 for a seat; free of it is what is neither sold nor
held by a hold that is live.

States: held, it is live; and the ends, which stay: confirmed, it was sold; released, its actor gave it back; expired, its
time has passed, and it holds nothing, whether or not anybody has noticed; late, its time had passed when the payment came:
nothing was sold, and what was paid under the reference is to be given back.

Holds are placed and confirmed by programs, in the transaction of the sale: see package hold.`

func (a *app) holdCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "show holds and what is for sale, and release a hold",
		Long:  holdLong,
		Example: `  tenure hold ls --state late
  tenure hold items --prefix hall-1/
  tenure hold show 01936f3e-8a2b-7c4d-9e0f-123456789abc
  tenure hold release 01936f3e-8a2b-7c4d-9e0f-123456789abc --yes`,
		Args: cobra.NoArgs,
		RunE: needsCommand,
	}
	cmd.AddCommand(a.holdListCommand(), a.holdShowCommand(), a.holdItemsCommand(), a.holdReleaseCommand())
	return cmd
}

// holds is what the commands need of holds.
type holds interface {
	hold.Store
	hold.Office
}

// holdsOf is what a store keeps of holds.
func holdsOf(s store) (holds, error) {
	switch s := s.(type) {
	case interface{ Holds() holds }:
		return s.Holds(), nil
	case *sqlite.Store:
		return s.Holds(), nil
	case *postgres.Store:
		return s.Holds(), nil
	}
	return nil, usagef("this store keeps no holds; use one of another kind")
}

// onHolds opens the store and hands its holds to do.
func (a *app) onHolds(ctx context.Context, do func(holds) error) error {
	s, _, err := a.open(ctx, openOptions{made: true})
	if err != nil {
		return err
	}
	defer a.close(ctx, s)
	h, err := holdsOf(s)
	if err != nil {
		return err
	}
	return do(h)
}

func parseHoldID(text string) (fence.ID, error) {
	id, err := fence.ParseID(text)
	if err != nil {
		return id, usagef("hold %q: %v", text, err)
	}
	return id, nil
}
