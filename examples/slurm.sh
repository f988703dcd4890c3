#!/bin/sh
# A SLURM job: torchrun on each of two nodes, which starts two ranks there.
#
#     sbatch examples/slurm.sh examples/ddp.py
#
# writes into slurm-JOB.out what the script prints. The ranks of a node share memory, and the nodes
# share the sums between them; nothing else has to run.
#SBATCH --job-name=afflux
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4

set -e
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=2
# Where the nodes' names belong to a management network, name the interface for the data:
# export AFFLUX_INTERFACE=eth1 GLOO_SOCKET_IFNAME=eth1

srun torchrun \
    --nnodes "$SLURM_JOB_NUM_NODES" --nproc-per-node 2 \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$first:29500" \
    "$@"
