// Package contract is what every peer has in common: its arguments, its timings, and what it prints.
package contract

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// client-go's own defaults for Kubernetes' components.
const (
	LeaseDuration = 15 * time.Second
	RenewDeadline = 10 * time.Second
	RetryPeriod   = 2 * time.Second
)

// Candidate is one replica.
type Candidate struct {
	Config *rest.Config
	Lock   resourcelock.Interface
}

// Parse reads the arguments; a bad one ends the process.
func Parse() Candidate {
	// controller-runtime has a flag --kubeconfig of its own in the common set.
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	namespace := flags.String("namespace", "", "namespace of the Lease")
	lease := flags.String("lease", "", "name of the Lease")
	identity := flags.String("identity", "", "name of this replica in the Lease")
	_ = flags.Parse(os.Args[1:])
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		Fail(err)
	}
	lock, err := resourcelock.NewFromKubeconfig(
		resourcelock.LeasesResourceLock, *namespace, *lease,
		resourcelock.ResourceLockConfig{Identity: *identity}, config, RenewDeadline)
	if err != nil {
		Fail(err)
	}
	return Candidate{Config: config, Lock: lock}
}

// UntilTerminated is done once the process gets SIGTERM.
func UntilTerminated() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	return ctx
}

// Leading says that this replica leads.
func Leading() { fmt.Println("leading") }

// Stopped says that it no longer leads.
func Stopped() { fmt.Println("stopped") }

// Fail ends the process.
func Fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
