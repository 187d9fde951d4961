#!/bin/bash
#SBATCH --job-name=trainer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --requeue
##SBATCH --gpus-per-node=2

# A job of Slurm, one task for each rank. Log in once on the login node (`rankzero login URL`), then:
#
#     sbatch examples/anywhere/sbatch.sh
#
# Each srun is a run; a requeued job's is the next attempt of that run.

export MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))

srun --kill-on-bad-exit=1 bash -c '
    export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
    exec rankzero watch --name "$SLURM_JOB_NAME" -- python "$@"
' trainer "${@:-examples/ddp.py}"
