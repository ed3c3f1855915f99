//go:build !linux

package sqlite

import "context"

func systemRoles() map[string]func(context.Context, *stage) error { return nil }
