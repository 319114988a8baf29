//! One certificate authority and everything it signs.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::kubeconfig;

/// A pair of PEM documents.
pub(crate) struct Credential {
    pub certificate: String,
    pub key: String,
}

/// Who a certificate speaks for.
pub(crate) struct Subject<'a> {
    /// The user's name.
    pub user: &'a str,
    /// The user's group; rcgen can't write more than one.
    pub group: Option<&'a str>,
    /// Names and addresses it may serve.
    pub hosts: Vec<String>,
}

impl<'a> Subject<'a> {
    pub fn user(user: &'a str) -> Self {
        Self {
            user,
            group: None,
            hosts: vec![],
        }
    }

    pub fn in_group(self, group: &'a str) -> Self {
        Self {
            group: Some(group),
            ..self
        }
    }

    pub fn serving(self, hosts: &[&str]) -> Self {
        Self {
            hosts: hosts.iter().map(|&host| host.into()).collect(),
            ..self
        }
    }
}

/// A directory with a certificate authority, the service accounts' key, and certificates.
#[derive(Clone, Debug)]
pub(crate) struct Pki {
    dir: PathBuf,
}

impl Pki {
    /// Opens the directory, made with all `subjects` (file name, subject) unless it is there already. It appears whole
    /// or not at all.
    pub fn ensure(dir: PathBuf, subjects: &[(&str, Subject<'_>)]) -> Result<Self> {
        if !dir.exists() {
            let partial = dir.with_extension("partial");
            if partial.exists() {
                fs::remove_dir_all(&partial)
                    .with_context(|| format!("cannot clear {}", partial.display()))?;
            }
            fs::create_dir_all(&partial)
                .with_context(|| format!("cannot create {}", partial.display()))?;
            Self {
                dir: partial.clone(),
            }
            .create(subjects)?;
            fs::rename(&partial, &dir)
                .with_context(|| format!("cannot create {}", dir.display()))?;
        }
        Ok(Self { dir })
    }

    /// Opens a directory that another call made.
    pub fn open(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn create(&self, subjects: &[(&str, Subject<'_>)]) -> Result<()> {
        let key = KeyPair::generate().context("cannot make the authority's key")?;
        let certificate = authority()
            .self_signed(&key)
            .context("cannot sign the authority")?;
        self.write("ca.crt", &certificate.pem())?;
        self.write("ca.key", &key.serialize_pem())?;
        let accounts = KeyPair::generate().context("cannot make the service accounts' key")?;
        self.write("sa.key", &accounts.serialize_pem())?;
        self.write("sa.pub", &accounts.public_key_pem())?;
        for (name, subject) in subjects {
            let credential = self.sign(subject)?;
            self.write(&format!("{name}.crt"), &credential.certificate)?;
            self.write(&format!("{name}.key"), &credential.key)?;
        }
        Ok(())
    }

    /// Signs a new certificate for client and server use.
    pub fn sign(&self, subject: &Subject<'_>) -> Result<Credential> {
        let authority_key =
            KeyPair::from_pem(&self.read("ca.key")?).context("cannot read the authority's key")?;
        let mut params = CertificateParams::new(subject.hosts.clone())
            .with_context(|| format!("bad host name in the certificate of {}", subject.user))?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, subject.user);
        if let Some(group) = subject.group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params
            .signed_by(&key, &Issuer::new(authority(), authority_key))
            .with_context(|| format!("cannot sign the certificate of {}", subject.user))?;
        Ok(Credential {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// A kubeconfig, whole in itself, for a certificate made by [`Pki::ensure`].
    pub fn kubeconfig(&self, name: &str, server: &str) -> Result<String> {
        let credential = Credential {
            certificate: self.read(&format!("{name}.crt"))?,
            key: self.read(&format!("{name}.key"))?,
        };
        self.kubeconfig_with(name, server, &credential)
    }

    /// A kubeconfig, whole in itself, for any credential.
    pub fn kubeconfig_with(
        &self,
        user: &str,
        server: &str,
        credential: &Credential,
    ) -> Result<String> {
        Ok(kubeconfig::render(
            server,
            &self.read("ca.crt")?,
            user,
            credential,
        ))
    }

    /// Path of a file, like `ca.crt`.
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = self.path(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    fn write(&self, file: &str, content: &str) -> Result<()> {
        write_private(&self.path(file), content)
    }
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &Path, content: &str) -> Result<()> {
    let open = || {
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
    };
    open()
        .and_then(|mut file| file.write_all(content.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "mzcompose");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_is_made_once_and_its_keys_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let subjects = || [("admin", Subject::user("admin").in_group("system:masters"))];
        let pki = Pki::ensure(dir.path().join("pki"), &subjects()).unwrap();
        let first = pki.read("admin.crt").unwrap();
        let again = Pki::ensure(dir.path().join("pki"), &subjects()).unwrap();
        assert_eq!(again.read("admin.crt").unwrap(), first);
        for key in ["ca.key", "sa.key", "admin.key"] {
            let mode = fs::metadata(pki.path(key)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
    }

    #[test]
    fn what_a_crash_left_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pki.partial")).unwrap();
        fs::write(dir.path().join("pki.partial/ca.crt"), "half").unwrap();
        let pki = Pki::ensure(dir.path().join("pki"), &[]).unwrap();
        assert!(
            pki.read("ca.crt")
                .unwrap()
                .starts_with("-----BEGIN CERTIFICATE-----")
        );
    }
}
