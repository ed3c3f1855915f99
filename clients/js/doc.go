// Package js is no Go: index.js is a client for JavaScript, and the test here runs its tests in Node against a server on a real socket.
package js
