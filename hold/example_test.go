package hold_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/store/memory"
)

// A seat is held while its buyer pays. Who pays too late is told so, with the payment on record to be given back.
func Example() {
	ctx := context.Background()
	store := memory.NewHolds(memory.Options{})
	if err := store.Stock(ctx, []hold.Item{{Name: "row 1 seat 7", Quantity: 1}}); err != nil {
		fmt.Println(err)
		return
	}
	place := func(id fence.ID, actor string) {
		h, err := store.Place(ctx, hold.PlaceRequest{ID: id, Actor: actor, Lines: []hold.Line{{Item: "row 1 seat 7", Quantity: 1}}, TTL: 10 * time.Minute})
		if errors.Is(err, hold.ErrTaken) {
			fmt.Println(actor, "has to wait")
			return
		}
		fmt.Println(actor, "has it:", h.State, err)
	}
	ann, bob, again := fence.ID{1}, fence.ID{2}, fence.ID{3} // in a program each is a UUIDv7, chosen before the call
	place(ann, "ann")
	place(bob, "bob")
	store.Advance(11 * time.Minute) // ann's bank is slow
	place(again, "bob")             // nobody has swept

	pay := func(id fence.ID, actor, reference string) {
		h, err := store.Confirm(ctx, hold.ConfirmRequest{ID: id, Actor: actor, Reference: reference})
		fmt.Println(actor, "pays by", h.Reference, "and is", h.State, err)
	}
	pay(ann, "ann", "charge 1")
	pay(again, "bob", "charge 2")
	// Output:
	// ann has it: held <nil>
	// bob has to wait
	// bob has it: held <nil>
	// ann pays by charge 1 and is late <nil>
	// bob pays by charge 2 and is confirmed <nil>
}
