package object_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/object"
	"github.com/tenure-go/tenure/fence/object/s3"
)

// A holder appends to an object. The claim is its lease's: lease.Lease.Claim.
func ExampleUpdate() {
	appendLine := func(ctx context.Context, claim fence.Claim, line string) error {
		bucket, err := s3.Open(s3.Options{URL: "https://s3.example.com/orders"}) // keys from the environment
		if err != nil {
			return err
		}
		defer bucket.Close()
		if err := bucket.Check(ctx, ""); err != nil { // once, where a program starts
			return err
		}
		err = object.Update(ctx, bucket, "2026/log", claim, func(old []byte) ([]byte, error) {
			return fmt.Appendf(nil, "%s%s\n", old, line), nil
		})
		switch {
		case errors.Is(err, fence.ErrRefused):
			log.Print("a successor has written: this lease is over")
		case errors.Is(err, object.ErrUnknown):
			log.Print("look for the line before writing it again")
		}
		return err
	}
	_ = appendLine
}
