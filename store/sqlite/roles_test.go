package sqlite

import "context"

// roles are the parts that a child can play.
func roles() map[string]func(context.Context, *stage) error {
	return map[string]func(context.Context, *stage) error{}
}
