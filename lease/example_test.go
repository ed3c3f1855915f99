package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/store/memory"
)

func ExampleDo() {
	ctx := context.Background()
	store := memory.New(memory.Options{})
	session, err := lease.Start(ctx, store, lease.Options{Owner: "report-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	var report string
	err = lease.Do(ctx, session, "reports/daily", func(ctx context.Context, l *lease.Lease) error {
		claim, err := l.Claim()
		if err != nil {
			return err // lost already: nothing was started
		}
		// The resource checks the claim in the same step as the write.
		return store.Fenced(ctx, claim, func(context.Context) error {
			report = fmt.Sprintf("written under token %d", claim.Token)
			return nil
		})
	})
	fmt.Println(report, err)
	// Output: written under token 1 <nil>
}

func ExampleSession_Acquire() {
	ctx := context.Background()
	store := memory.New(memory.Options{})
	session, err := lease.Start(ctx, store, lease.Options{Owner: "importer"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close(ctx)

	first, err := session.Acquire(ctx, lease.Want{Names: []string{"accounts/1", "accounts/2"}, MaxHold: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = session.Acquire(ctx, lease.Want{Names: []string{"accounts/2"}, Try: true})
	var held *lease.HeldError
	fmt.Println(errors.As(err, &held), held.Name, held.Owner)

	stale, err := first.Claims()
	fmt.Println(len(stale), err)
	fmt.Println(first.Release(ctx), context.Cause(first.Context()))

	// Whoever still writes under the released lease is refused at the resource.
	err = store.Fenced(ctx, stale[0], func(context.Context) error { return nil })
	fmt.Println(errors.Is(err, fence.ErrRefused))
	// Output:
	// true accounts/2 importer
	// 2 <nil>
	// <nil> lease: lost: the authority says released
	// true
}
