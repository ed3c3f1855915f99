package admission_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/admission"
)

// A service that does one thing at a time is busy: more work is shed with a hint when to come again, and a renewal is let in.
func ExampleLimiter() {
	l, err := admission.New(admission.Options{Least: 1, Most: 1, Wait: time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	release, err := l.Acquire(ctx, admission.Work)
	fmt.Println("first:", err)
	_, err = l.Acquire(ctx, admission.Work)
	var known *budget.Error
	fmt.Println("second:", errors.As(err, &known), known.Class, known.Again, known.RetryAfter >= time.Second)
	renewed, err := l.Acquire(ctx, admission.Renewal)
	fmt.Println("renewal:", err)
	renewed(admission.Succeeded)
	release(admission.Succeeded)
	fmt.Println("shed:", l.Numbers().By[admission.Work].Shed)
	// Output:
	// first: <nil>
	// second: true refused true true
	// renewal: <nil>
	// shed: 1
}
